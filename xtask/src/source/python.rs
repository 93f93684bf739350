//! A Python text taken apart into code and comments, as `Source` does with Rust.

use super::Source;

/// Takes a text apart. Strings are blank in both halves, docstrings too.
pub fn halves(text: &str) -> Source {
    let mut halves = Source { code: String::new(), comments: String::new() };
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => string_length(rest, first),
            _ => first.len_utf8(),
        };
        let (part, after) = rest.split_at(length);
        match first {
            '#' => push(&mut halves.comments, &mut halves.code, part),
            '"' | '\'' => {
                halves.code.push_str(&blank(part));
                halves.comments.push_str(&blank(part));
            }
            _ => push(&mut halves.code, &mut halves.comments, part),
        }
        rest = after;
    }
    halves
}

fn push(kept: &mut String, other: &mut String, part: &str) {
    kept.push_str(part);
    other.push_str(&blank(part));
}

fn blank(part: &str) -> String {
    part.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
}

/// The length of the string that begins here. A raw string ends where another would too: a quote after a backslash
/// belongs to both.
fn string_length(text: &str, quote: char) -> usize {
    let triple: String = std::iter::repeat_n(quote, 3).collect();
    let (end, is_long) = if text.starts_with(&triple) { (triple, true) } else { (quote.to_string(), false) };
    let mut at = end.len();
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with(&end) {
            return at + end.len();
        }
        if c == '\n' && !is_long {
            return at;
        }
        at += c.len_utf8();
        if c == '\\' {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_are_not_code() {
        let text = "a = \"sleep # x\"  # sleep\nb = '''one\nsleep \"'''; done()\nc = 'it\\'s sleep'; d\n";
        let source = halves(text);
        assert!(!source.code.contains("sleep"));
        assert!(source.code.contains("done()") && source.code.contains("; d"));
        assert_eq!(source.comments.trim(), "# sleep");
        assert_eq!(source.code.lines().count(), text.lines().count());
    }

    #[test]
    fn a_string_that_nobody_closes_ends_with_its_line_or_the_text() {
        assert!(halves("a = 'x\nb").code.ends_with('b'));
        assert!(!halves("a = '''x\nb").code.contains('b'));
        assert!(halves("a = \"\"; b").code.contains('b'));
    }
}
