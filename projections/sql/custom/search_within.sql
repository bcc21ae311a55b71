-- Where names are looked for until the transaction ends. $1 schema.
SELECT set_config('search_path', $1, true)
