//! `lockkeeper proof verify DIR`

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};
use crate::proof::Where;

pub(crate) fn run(context: &Context, place: &Where) -> Result<(), Failure> {
    let found = lockkeeper_proof::verify(&place.dir, place.options()?)?;
    let sound = found.is_sound();
    if context.global.json {
        let mut body = serde_json::to_value(&found).map_err(anyhow::Error::from)?;
        body["success"] = sound.into();
        output::json(&body);
    } else {
        for finding in &found.findings {
            let severity = format!("{:?}", finding.severity).to_lowercase();
            say!("{severity}: {}: {}", finding.file, finding.what);
            say!("  {}", finding.meaning);
        }
        if found.left_out > 0 {
            note!("and {} more", found.left_out);
        }
        let verdict = if sound { "can be read by everybody" } else { "can't be relied on" };
        say!(
            "{} of the profile {}: the ledger {verdict}.",
            output::counted(found.events as usize, "event"),
            found.profile
        );
    }
    if sound { Ok(()) } else { Err(Failure::Silent(1)) }
}
