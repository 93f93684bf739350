//! A Rust text taken apart into code and comments, without a parser.
//!
//! Every check looks at one half: a word in a string or a comment is no call, and a mark of unfinished work
//! in code is no comment. Both halves keep the line structure of the original, so a line number found in one
//! is the line number in the file. Strings and characters are blank in both.

pub mod python;

/// The two halves of one file.
pub struct Source {
    /// The text with comments, strings and characters blanked.
    pub code: String,
    /// The text with everything but comments blanked.
    pub comments: String,
}

impl Source {
    /// Takes a text apart.
    pub fn of(text: &str) -> Self {
        let mut scanner = Scanner {
            chars: text.chars().collect(),
            at: 0,
            halves: Self { code: String::new(), comments: String::new() },
        };
        while scanner.at < scanner.chars.len() {
            scanner.step();
        }
        scanner.halves
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Code,
    Comment,
    Neither,
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    halves: Source,
}

impl Scanner {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn take(&mut self, half: Half) {
        let Some(&c) = self.chars.get(self.at) else { return };
        let blank = if c == '\n' { '\n' } else { ' ' };
        self.halves.code.push(if half == Half::Code { c } else { blank });
        self.halves.comments.push(if half == Half::Comment { c } else { blank });
        self.at += 1;
    }

    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => {
                while self.at < self.chars.len() && self.peek(0) != '\n' {
                    self.take(Half::Comment);
                }
            }
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(),
            ('r', '"' | '#') if !self.after_word() && self.raw_hashes().is_some() => self.raw_string(),
            ('\'', _) => self.quote(),
            _ => self.take(Half::Code),
        }
    }

    /// Whether the character before is part of a word, a `b` or `c` prefix of a literal apart.
    fn after_word(&self) -> bool {
        let before = |back: usize| self.at.checked_sub(back).map_or(' ', |i| self.chars[i]);
        match before(1) {
            'b' | 'c' => is_word(before(2)),
            other => is_word(other),
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    self.take(Half::Comment);
                    continue;
                }
            }
            self.take(Half::Comment);
            self.take(Half::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.take(Half::Neither);
        while self.at < self.chars.len() {
            let c = self.peek(0);
            self.take(Half::Neither);
            match c {
                '\\' => self.take(Half::Neither),
                '"' => return,
                _ => {}
            }
        }
    }

    /// The number of `#` of a raw string that begins here, if one does (`r#type` is a word).
    fn raw_hashes(&self) -> Option<usize> {
        let hashes = (1..).take_while(|&ahead| self.peek(ahead) == '#').count();
        (self.peek(1 + hashes) == '"').then_some(hashes)
    }

    fn raw_string(&mut self) {
        let hashes = self.raw_hashes().unwrap_or(0);
        for _ in 0..hashes + 2 {
            self.take(Half::Neither);
        }
        while self.at < self.chars.len() {
            let closes = self.peek(0) == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == '#');
            self.take(Half::Neither);
            if closes {
                for _ in 0..hashes {
                    self.take(Half::Neither);
                }
                return;
            }
        }
    }

    /// A character, or else a lifetime.
    fn quote(&mut self) {
        if self.peek(1) == '\\' {
            self.take(Half::Neither);
            self.take(Half::Neither);
            self.take(Half::Neither);
            while self.at < self.chars.len() && self.peek(0) != '\'' {
                self.take(Half::Neither);
            }
            self.take(Half::Neither);
        } else if self.peek(2) == '\'' {
            for _ in 0..3 {
                self.take(Half::Neither);
            }
        } else {
            self.take(Half::Code);
        }
    }
}

/// Whether a character can be part of an identifier.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `word` stands in `text` with no word character on either side.
pub fn find_word(text: &str, word: &str) -> Option<usize> {
    text.match_indices(word).map(|(at, _)| at).find(|&at| {
        let before = text[..at].chars().next_back().unwrap_or(' ');
        let after = text[at + word.len()..].chars().next().unwrap_or(' ');
        let open_start = !word.starts_with(is_word) || !is_word(before);
        let open_end = !word.ends_with(is_word) || !is_word(after);
        open_start && open_end
    })
}

/// The identifiers of a text, in order.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

/// The text between the first `{` at or after `from` and its partner.
pub fn block(code: &str, from: usize) -> Option<(usize, usize)> {
    let open = from + code[from..].find('{')?;
    let mut depth = 0_usize;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some((open + 1, open + at));
                }
            }
            _ => {}
        }
    }
    None
}

/// For each line of code, whether it stands in an item marked `#[test]` or `#[cfg(test)]`, also with further
/// conditions, or in a file that is one as a whole.
pub fn test_lines(code: &str) -> Vec<bool> {
    let line_of = |at: usize| code[..at].matches('\n').count();
    let mut flags = vec![false; code.lines().count()];
    for (at, _) in code.match_indices('#') {
        let Some((whole_file, length)) = test_attribute(&code[at..]) else { continue };
        let from = at + length;
        let end = if whole_file {
            code.len()
        } else {
            let item = &code[from..];
            let semicolon = item.find(';').unwrap_or(usize::MAX);
            match block(code, from) {
                Some((open, close)) if open - from <= semicolon => close,
                _ => continue,
            }
        };
        let last = line_of(end).min(flags.len().saturating_sub(1));
        if let Some(lines) = flags.get_mut(line_of(at)..=last) {
            lines.fill(true);
        }
    }
    flags
}

/// If a test attribute begins here: whether it holds for the whole file, and its length.
fn test_attribute(code: &str) -> Option<(bool, usize)> {
    let whole_file = code.starts_with("#![");
    let inner = code.strip_prefix("#![").or_else(|| code.strip_prefix("#["))?;
    let end = inner.find(']')?;
    let attribute = inner[..end].trim();
    let condition = attribute.strip_prefix("cfg(").filter(|rest| !rest.starts_with("not("));
    let is_test = attribute == "test" || condition.is_some_and(|rest| find_word(rest, "test").is_some());
    is_test.then_some((whole_file, code.len() - inner.len() + end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_are_not_code() {
        let source = Source::of("let a = \"unsafe // x\"; // unsafe\nlet b = r#\"un\"safe\"#; /* a /* b */ c */ done");
        assert!(!source.code.contains("unsafe"));
        assert!(!source.code.contains("safe"));
        assert!(source.code.contains("done"));
        assert!(source.comments.contains("// unsafe"));
        assert!(!source.comments.contains("// x"));
        assert_eq!(source.code.lines().count(), 2);
    }

    #[test]
    fn a_quote_begins_a_character_or_a_lifetime() {
        let source = Source::of("fn f<'a>(x: &'a str) { '\"'; '\\''; '{'; y }");
        assert!(source.code.contains("'a str"));
        assert!(source.code.contains("y }"));
        assert_eq!(source.code.matches('{').count(), 1);
    }

    #[test]
    fn words_are_found_whole() {
        assert!(find_word("deny(unsafe_code)", "unsafe").is_none());
        assert_eq!(find_word("unsafe_code; unsafe {", "unsafe"), Some(13));
        assert!(find_word("my_std::fs", "std::fs").is_none());
    }

    #[test]
    fn test_items_are_marked_from_the_attribute_to_the_closing_brace() {
        let code =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod more;\nfn d() {}\n";
        let expected = [false, true, true, true, true, false, false, false, false];
        assert_eq!(test_lines(code), expected);
        assert_eq!(test_lines("#![cfg(all(test, loom))]\nfn a() {}\n"), [true, true]);
        assert_eq!(test_lines("#[cfg(not(test))]\nfn a() {\n}\n"), [false; 3]);
    }
}
