//! The wall clock, in words.

use jiff::Timestamp;
use jiff::tz::Offset;

/// A wall-clock time as RFC 3339, in milliseconds.
pub fn wall_time(micros: u64) -> String {
    let text = wall_time_bytes(micros);
    std::str::from_utf8(&text).expect("digits and signs").to_owned()
}

/// The same as it is written. Always as many letters, so that the text sorts like the time. By hand, as it is written twice in
/// every answer.
pub(crate) fn wall_time_bytes(micros: u64) -> [u8; 24] {
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let latest = Timestamp::MAX.as_microsecond();
    let micros = i64::try_from(micros).unwrap_or(latest).min(latest);
    let time = Offset::UTC.to_datetime(Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX));
    let mut put = |place: usize, number: u8| {
        text[place] = b'0' + number / 10;
        text[place + 1] = b'0' + number % 10;
    };
    let (year, millis) = (time.year().unsigned_abs(), time.millisecond().unsigned_abs());
    put(0, (year / 100) as u8);
    put(2, (year % 100) as u8);
    put(5, time.month().unsigned_abs());
    put(8, time.day().unsigned_abs());
    put(11, time.hour().unsigned_abs());
    put(14, time.minute().unsigned_abs());
    put(17, time.second().unsigned_abs());
    put(21, (millis % 100) as u8);
    text[20] = b'0' + (millis / 100) as u8;
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
        assert_eq!(wall_time(u64::MAX), "9999-12-30T22:00:00.999Z", "the last that there is");
    }
}
