//! What a source, and so a cache, may be called: its name is a folder's name on every file system.

use unicode_normalization::is_nfc;

use crate::{Error, Result};

/// Longest name of a source in bytes of UTF-8: file systems take 255, and a building folder's name is a longer one.
pub const MAX_SOURCE_NAME_BYTES: usize = 200;

/// Checks that `name` may name a source.
///
/// # Errors
///
/// [`Error::Config`] with the name and the rule that it breaks.
pub fn check_source_name(name: &str) -> Result<()> {
    match broken_rule(name) {
        None => Ok(()),
        Some(rule) => Err(Error::config(format!(
            "source name must {rule}, got {}; rename the source, for it names the cache's folder",
            shortened(name)
        ))),
    }
}

/// The rule that `name` breaks, as what a name must do.
pub(super) fn broken_rule(name: &str) -> Option<String> {
    let rule = if name.is_empty() || name.len() > MAX_SOURCE_NAME_BYTES {
        return Some(format!("have 1 to {MAX_SOURCE_NAME_BYTES} bytes of UTF-8, not {}", name.len()));
    } else if let Some(character) = name.chars().find(|&character| matches!(character, '/' | '\\')) {
        return Some(format!("be one path segment without {character:?}"));
    } else if let Some(character) = name.chars().find(|character| character.is_control()) {
        return Some(format!("hold no control character such as {character:?}"));
    } else if name.starts_with('.') {
        "not start with a dot"
    } else if name.ends_with(['.', ' ']) {
        "not end with a dot or a space"
    } else if !is_nfc(name) {
        "be in Unicode's normalization form C"
    } else {
        return None;
    };
    Some(rule.to_owned())
}

/// `name` for a message: quoted, escaped, and cut where it would fill the screen.
pub(super) fn shortened(name: &str) -> String {
    const SHOWN: usize = 60;
    match name.char_indices().nth(SHOWN) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}…", name.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;

    #[test]
    fn names_that_a_folder_can_have_everywhere_are_taken() {
        for name in ["a", "train-2024.v1", "двор", "写真", "a b", "caf\u{e9}", "con", "~", &"x".repeat(200)] {
            check_source_name(name).unwrap();
        }
    }

    #[test]
    fn each_rule_is_named_with_the_value() {
        let long = "x".repeat(201);
        let wide = "é".repeat(101);
        let refused = [
            ("", "have 1 to 200 bytes of UTF-8, not 0, got \"\""),
            (&long, "have 1 to 200 bytes of UTF-8, not 201, got \"xxx"),
            (&wide, "have 1 to 200 bytes of UTF-8, not 202, got \"é"),
            ("a/b", "be one path segment without '/', got \"a/b\""),
            ("..", "not start with a dot, got \"..\""),
            (".hidden", "not start with a dot, got \".hidden\""),
            ("a\\b", "be one path segment without '\\\\', got \"a\\\\b\""),
            ("a\nb", "hold no control character such as '\\n', got \"a\\nb\""),
            ("a\0", "hold no control character such as '\\0', got \"a\\0\""),
            ("a\u{7f}", "hold no control character such as '\\u{7f}', got \"a\\u{7f}\""),
            ("a\u{85}b", "hold no control character such as '\\u{85}', got \"a\\u{85}b\""),
            ("a.", "not end with a dot or a space, got \"a.\""),
            ("a ", "not end with a dot or a space, got \"a \""),
            ("cafe\u{301}", "be in Unicode's normalization form C, got \"cafe\\u{301}\""),
        ];
        for (name, rule) in refused {
            let error = check_source_name(name).unwrap_err();
            assert!(matches!(error, Error::Config { .. }));
            let message = error.to_string();
            assert!(message.starts_with(&format!("source name must {rule}")), "{message}");
            assert!(message.ends_with("; rename the source, for it names the cache's folder"), "{message}");
        }
    }
}
