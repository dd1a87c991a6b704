"""What changes of what is live: catalogue versions, item updates, bundles read anew."""
