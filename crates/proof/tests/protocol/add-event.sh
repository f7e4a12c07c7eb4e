#!/bin/bash
# Example: External tool appending an event to the ledger

LEDGER_DIR="$PROOF_DIR/ledger"
LOCK_FILE="$LEDGER_DIR/ledger.lock"

# 1. Acquire lock (simplified - production should use proper atomic creation)
while ! mkdir "$LOCK_FILE" 2>/dev/null; do
    sleep 0.01
done

# 2. Get next sequence number
NEXT_SEQ=$(ls "$LEDGER_DIR"/event-*.json 2>/dev/null | wc -l)
NEXT_SEQ=$((NEXT_SEQ + 1))

# 3. Write event to temp file
TEMP_FILE=$(mktemp "$LEDGER_DIR/.event-XXXXX.tmp")
echo '{"type":"custom_event","timestamp":"'$(date -u +%Y-%m-%dT%H:%M:%SZ)'"}' > "$TEMP_FILE"

# 4. Atomic rename
mv "$TEMP_FILE" "$LEDGER_DIR/event-$(printf '%06d' $NEXT_SEQ).json"

# 5. Release lock
rmdir "$LOCK_FILE"
