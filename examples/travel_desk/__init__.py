"""A travel desk: an agent that searches freely, books small things alone and asks a person for the rest."""
