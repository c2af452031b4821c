"""A travel desk: an agent that searches freely, makes small bookings alone and asks an approver for the rest."""
