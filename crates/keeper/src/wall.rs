//! The wall clock, in words.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use jiff::tz::Offset;

/// A wall-clock time as RFC 3339, in milliseconds.
pub fn wall_time(micros: u64) -> String {
    let text = wall_time_bytes(micros);
    std::str::from_utf8(&text).expect("digits and signs").to_owned()
}

/// The same as it is written. Always as many letters, so that the text sorts like the time. By hand, as it is written twice in
/// every answer.
pub fn wall_time_bytes(micros: u64) -> [u8; 24] {
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let latest = Timestamp::MAX.as_microsecond().unsigned_abs();
    let millis = micros.min(latest) / 1000;
    let (day, of_day) = ((millis / DAY_MS) as u32, (millis % DAY_MS) as u32);
    let mut put = |place: usize, number: u32| {
        text[place] = b'0' + (number / 10) as u8;
        text[place + 1] = b'0' + (number % 10) as u8;
    };
    let Date { year, month, day } = date_of(day);
    put(0, year / 100);
    put(2, year % 100);
    put(5, month);
    put(8, day);
    put(11, of_day / 3_600_000);
    put(14, of_day / 60_000 % 60);
    put(17, of_day / 1000 % 60);
    put(21, of_day % 100);
    text[20] = b'0' + (of_day % 1000 / 100) as u8;
    text
}

const DAY_MS: u64 = 86_400_000;

#[derive(Clone, Copy)]
struct Date {
    year: u32,
    month: u32,
    day: u32,
}

/// The date of a day, counted from that of the epoch. Most of the time it is the day that was asked for last.
fn date_of(number: u32) -> Date {
    // The day's number, its year, its month and its day, all in one, so that it can be read by many at once.
    static LAST: AtomicU64 = AtomicU64::new(1970 << 16 | 1 << 8 | 1);
    let last = LAST.load(Ordering::Relaxed);
    if (last >> 32) as u32 == number {
        let part = last as u32;
        return Date { year: part >> 16, month: part >> 8 & 0xff, day: part & 0xff };
    }
    let midnight = Timestamp::from_second(i64::from(number) * 86_400).unwrap_or(Timestamp::MAX);
    let date = Offset::UTC.to_datetime(midnight).date();
    let (year, month, day) = (date.year().unsigned_abs(), date.month().unsigned_abs(), date.day().unsigned_abs());
    let (year, month, day) = (u32::from(year), u32::from(month), u32::from(day));
    LAST.store(u64::from(number) << 32 | u64::from(year << 16 | month << 8 | day), Ordering::Relaxed);
    Date { year, month, day }
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
