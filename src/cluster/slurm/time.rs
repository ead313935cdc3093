//! Time limits as sbatch takes them.

use crate::error::{Error, Result};

/// Seconds of a limit: `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`,
/// `days-hours:minutes`, `days-hours:minutes:seconds`; `None` for no limit (`UNLIMITED`, `INFINITE`, 0).
pub(super) fn limit_secs(text: &str) -> Result<Option<u64>> {
    let wrong = || {
        let reason = format!("`{text}` is not a time limit such as 90, 12:00:00 or 2-00");
        Error::config("--time", reason)
    };
    if ["UNLIMITED", "INFINITE", "-1"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Ok(None);
    }
    let number = |part: &str| part.parse::<u32>().map(u64::from).map_err(|_| wrong());
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, text),
    };
    let parts = clock.split(':').map(number).collect::<Result<Vec<_>>>()?;
    let secs = match (days, parts.as_slice()) {
        (None, [m]) => m * 60,
        (None, [m, s]) => m * 60 + s,
        (None, [h, m, s]) => h * 3600 + m * 60 + s,
        (Some(d), [h]) => d * 86_400 + h * 3600,
        (Some(d), [h, m]) => d * 86_400 + h * 3600 + m * 60,
        (Some(d), [h, m, s]) => d * 86_400 + h * 3600 + m * 60 + s,
        _ => return Err(wrong()),
    };
    Ok((secs > 0).then_some(secs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_sbatch_is_understood() -> Result<()> {
        // The forms of sbatch(1), --time.
        for (text, secs) in [
            ("90", 5400),
            ("1:30", 90),
            ("12:00:00", 43_200),
            ("2-00", 172_800),
            ("1-02:03", 93_780),
            ("1-02:03:04", 93_784),
        ] {
            assert_eq!(limit_secs(text)?, Some(secs), "{text}");
        }
        assert_eq!(limit_secs("UNLIMITED")?, None);
        Ok(())
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "1h", "1:2:3:4", "1-", "-5", "1-2-3"] {
            assert!(limit_secs(text).is_err_and(|e| e.exit_code() == 2), "{text}");
        }
    }
}
