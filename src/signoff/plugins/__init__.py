"""What a plugin is, the plugins that come with Signoff, and how plugins are loaded."""
