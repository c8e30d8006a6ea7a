//! Dates in keys and replies. The algorithms are those of Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms".

/// Seconds of Unix time that a reply may have, of 2001 to 2099.
const SECONDS: std::ops::RangeInclusive<u64> = 1_000_000_000..=4_099_999_999;
const HOURS_OF_DAY: u64 = 24;

/// The number of a day: that of 1 January 1970 is 0.
pub fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a day as a number: 20260131.
fn date(days: i64) -> i64 {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    year * 10_000 + month * 100 + day
}

/// Returns the date of a Unix time in seconds or milliseconds, as the numbers that keys have: 20260131, and with the hour 2026013123. The zone is
/// UTC. Other numbers are no times.
pub fn of_time(number: u64) -> Option<[u64; 2]> {
    let seconds = if number > *SECONDS.end() { number / 1000 } else { number };
    if !SECONDS.contains(&seconds) {
        return None;
    }
    let hours = seconds / 3600;
    let date = date((hours / HOURS_OF_DAY) as i64) as u64;
    Some([date, date * 100 + hours % HOURS_OF_DAY])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_inverse() {
        assert_eq!((days(1970, 1, 1), days(2000, 3, 1), date(0)), (0, 11_017, 19_700_101));
        for day in (-200_000..200_000).step_by(37) {
            let date = date(day);
            assert_eq!(days(date / 10_000, date / 100 % 100, date % 100), day);
        }
    }

    #[test]
    fn times_have_dates() {
        assert_eq!(of_time(1_750_000_000), Some([20_250_615, 2_025_061_515]));
        assert_eq!(of_time(1_750_000_000_123), Some([20_250_615, 2_025_061_515]));
        assert_eq!((of_time(999_999_999), of_time(17)), (None, None));
    }
}
