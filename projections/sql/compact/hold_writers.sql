-- Keeps everybody who writes rows waiting until this transaction has ended, of whatever stack: all of
-- them lock a checkpoint first. Who has begun ends before. Readers go on.
LOCK TABLE projection_checkpoints IN EXCLUSIVE MODE
