-- With a hash of redacted arguments, anybody can confirm a guess of them.

UPDATE episode_steps
SET side_effect_key = regexp_replace(side_effect_key, ':[0-9a-f]{16}$', '')
WHERE side_effect_key ~ ':[0-9a-f]{16}$';
COMMENT ON COLUMN episode_steps.side_effect_key IS
    'The idempotency key that was passed to the tool, without the hash of the arguments at its end.';
