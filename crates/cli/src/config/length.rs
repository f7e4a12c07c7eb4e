//! Lengths of time, as people write them.

use anyhow::Result;
use lockkeeper_core::time::Millis;
use lockkeeper_wire::word::Word;

use crate::failure::Failure;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Reads a TTL; what is no length of time is refused as a TTL.
pub(crate) fn ttl(text: &str) -> Result<Millis, Failure> {
    length(text).map_err(|error| Failure::Question { word: Word::InvalidTtl, message: error.to_string(), hint: None })
}

/// Reads a length of time as people write it: `20s`, `1h30m`, `500ms`, `7d`.
pub(crate) fn length(text: &str) -> Result<Millis> {
    // Whatever is suggested is within the limits of a TTL.
    let none = || anyhow::anyhow!("'{text}' is no length of time; write 20s, 5m or 1h30m");
    // Days have as many hours as any other, whatever the calendar says of one.
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) if !days.is_empty() && days.bytes().all(|digit| digit.is_ascii_digit()) => {
            (days.parse::<u64>().map_err(|_| none())?, rest.trim_start())
        }
        Some(_) | None => (0, text),
    };
    let rest = match rest {
        "" if text.ends_with('d') => jiff::SignedDuration::ZERO,
        rest => rest.parse().map_err(|_| none())?,
    };
    let millis = u64::try_from(rest.as_millis());
    let millis = millis.map_err(|_| anyhow::anyhow!("'{text}' is a negative length of time"))?;
    Ok(Millis(millis.saturating_add(days.saturating_mul(DAY_MS))))
}
