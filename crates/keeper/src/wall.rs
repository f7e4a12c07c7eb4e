//! The wall clock, in words.

use jiff::Timestamp;
use jiff::tz::Offset;

/// A wall-clock time as RFC 3339, in milliseconds.
pub fn wall_time(micros: u64) -> String {
    let Ok(time) = Timestamp::from_microsecond(i64::try_from(micros).unwrap_or(i64::MAX)) else { return String::new() };
    let time = Offset::UTC.to_datetime(time);
    let mut text = String::with_capacity("2026-01-01T00:00:00.000Z".len());
    let mut push = |before: &str, number: u32, digits: u32| {
        text.push_str(before);
        for place in (0..digits).rev() {
            text.push(char::from(b'0' + (number / 10u32.pow(place) % 10) as u8));
        }
    };
    // Always as many digits, so that the text sorts like the time. By hand, as it is written twice in every answer.
    push("", time.year().unsigned_abs().into(), 4);
    push("-", time.month().unsigned_abs().into(), 2);
    push("-", time.day().unsigned_abs().into(), 2);
    push("T", time.hour().unsigned_abs().into(), 2);
    push(":", time.minute().unsigned_abs().into(), 2);
    push(":", time.second().unsigned_abs().into(), 2);
    push(".", time.millisecond().unsigned_abs().into(), 3);
    text.push('Z');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_time_is_rfc_3339_in_milliseconds() {
        for micros in [0, 1, 999_999, 951_782_400_000_000, 1_794_808_057_151_686, 4_102_444_799_999_999] {
            let time = Timestamp::from_microsecond(micros).unwrap();
            assert_eq!(wall_time(micros.unsigned_abs()), format!("{time:.3}"));
        }
        assert_eq!(wall_time(u64::MAX), "");
    }
}
