-- Where names without a schema are looked for from now on, in this connection. $1 schemas.
SELECT set_config('search_path', $1, false)
