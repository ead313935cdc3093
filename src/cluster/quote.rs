//! Words as a shell reads them.

/// `word` as a shell takes it: in single quotes where it holds what means something to a shell.
pub fn shell_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:=@%,+-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_every_word() -> std::io::Result<()> {
        for word in
            ["/scratch/run", "/a b", "", "it's", "$HOME", "a\\b", "~", "*", "ü", "\"", "a\nb"]
        {
            let script = format!("printf %s {}", shell_quoted(word));
            let printed = std::process::Command::new("sh").args(["-c", &script]).output()?.stdout;
            assert_eq!(String::from_utf8_lossy(&printed), word);
        }
        assert_eq!(shell_quoted("/scratch/run-1"), "/scratch/run-1");
        Ok(())
    }
}
