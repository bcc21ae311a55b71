"""Commands that run on until they are stopped: servers, a console, a lab."""
