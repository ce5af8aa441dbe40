//! Durations as people write them: `10s`, `500ms`, `1.5h`; a bare number is seconds.

use std::time::Duration;

const FORMS: &str =
    "use a number and a unit, as in 500ms, 10s, 2m, 1h or 1d; a number without a unit is seconds";

/// Reads a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(FORMS.to_owned()),
    };
    // Digits and dots only: no sign, no exponent, no infinity.
    let number: f64 = number.parse().map_err(|_| FORMS.to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "too long".to_owned())
}

/// Reads how long to wait; `forever` is [`Duration::MAX`].
pub(crate) fn parse_wait(text: &str) -> Result<Duration, String> {
    if text == "forever" {
        Ok(Duration::MAX)
    } else {
        parse(text).map_err(|why| format!("{why}; or forever"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        let cases = [
            ("0", 0),
            ("10", 10_000),
            ("10s", 10_000),
            ("0.5", 500),
            ("500ms", 500),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse_wait("forever"), Ok(Duration::MAX));
        assert_eq!(parse_wait("30s"), Ok(Duration::from_secs(30)));
    }

    #[test]
    fn nonsense_is_refused() {
        let bad = [
            "", " ", "s", "-1", "+1", "1e3", "inf", "nan", "1.2.3", ".", "10 s", "10S", "10sec", "1m30s",
            "٣", "forever",
        ];
        for text in bad {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse(&"9".repeat(400)), Err("too long".to_owned()));
        assert!(parse_wait("never").is_err());
    }
}
