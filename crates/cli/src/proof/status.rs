//! `lockkeeper proof status DIR`

use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::proof::Where;

pub(crate) fn run(context: &Context, place: &Where) -> Result<(), Failure> {
    let ledger = place.open()?;
    let (sequence, lock, timeout) = (ledger.sequence()?, ledger.lock_state()?, ledger.claim_timeout()?);
    let (claims, now) = (ledger.claims()?, ledger.now());
    let (all, active) = (claims.all().len(), claims.active(now).len());
    if context.global.json {
        output::json(&json!({
            "success": true,
            "dir": place.dir,
            "profile": ledger.profile(),
            "sequence": sequence,
            "claims": { "active": active, "expired": all - active },
            "lock_timeout_ms": timeout.as_millis() as u64,
            "lock": lock,
        }));
        return Ok(());
    }
    say!("Profile:  {}", ledger.profile());
    say!("Sequence: {sequence}");
    say!("Claims:   {active} active, {} expired; each lasts {} s", all - active, timeout.as_secs_f64());
    say!("Lock:     {}", lock.describe());
    Ok(())
}
