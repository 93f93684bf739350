//! One stream of a worker, cut into lines.
//!
//! Called by the keeper for what it reads from a worker's pipe. A line that grows beyond [`STDERR_LINE_BYTES_MAX`] is
//! passed on in pieces, cut between characters where there are any. A worker says what it runs with a *mark*, a line of
//! its own: byte 0x1E, the name, 0x1E, newline. Marks are taken out, also from behind an unfinished line, and the name
//! holds for what follows; a 0x1E that begins no mark is text.

use super::stderr::STDERR_LINE_BYTES_MAX;

/// Bytes of a name in a mark; a longer one is text.
pub const OUTPUT_NAME_BYTES_MAX: usize = 256;
/// The byte around a name.
const MARK: u8 = 0x1e;

/// The state of one stream.
#[derive(Default)]
pub(super) struct Lines {
    unfinished: Vec<u8>,
    /// What followed a [`MARK`] so far.
    mark: Option<Vec<u8>>,
    name: String,
}

impl Lines {
    /// Takes what the worker wrote and passes on the lines that are complete, each with its newline and the name.
    pub(super) fn push(&mut self, mut bytes: &[u8], pass_on: &mut impl FnMut(&str, &[u8])) {
        while let Some((first, rest)) = bytes.split_first() {
            if let Some(mark) = &mut self.mark {
                mark.push(*first);
                bytes = rest;
                if *first == b'\n' || mark.len() > OUTPUT_NAME_BYTES_MAX + 1 {
                    self.end_mark(pass_on);
                }
                continue;
            }
            let end = bytes.iter().position(|byte| *byte == MARK).unwrap_or(bytes.len());
            let (text, rest) = bytes.split_at(end);
            self.add(text, pass_on);
            bytes = rest;
            if !bytes.is_empty() {
                self.mark = Some(Vec::new());
                bytes = &bytes[1..];
            }
        }
    }

    /// The stream has ended: so has its last line.
    pub(super) fn finish(&mut self, pass_on: &mut impl FnMut(&str, &[u8])) {
        if let Some(mark) = self.mark.take() {
            self.add(&[MARK], pass_on);
            self.add(&mark, pass_on);
        }
        self.end_line(pass_on);
    }

    /// What followed a [`MARK`] is a name, or text after all.
    fn end_mark(&mut self, pass_on: &mut impl FnMut(&str, &[u8])) {
        let Some(mut mark) = self.mark.take() else { return };
        let is_whole = mark.ends_with(&[MARK, b'\n']);
        if is_whole {
            mark.truncate(mark.len() - 2);
        }
        let Some(inner) = mark.iter().rposition(|byte| *byte == MARK) else {
            if is_whole {
                self.end_line(pass_on);
                self.name = String::from_utf8_lossy(&mark).into_owned();
            } else {
                self.add(&[MARK], pass_on);
                self.add(&mark, pass_on);
            }
            return;
        };
        // The mark that counts begins further on.
        self.add(&[MARK], pass_on);
        self.add(&mark[..inner], pass_on);
        let name = &mark[inner + 1..];
        match (is_whole, name.ends_with(b"\n")) {
            (true, _) => {
                self.end_line(pass_on);
                self.name = String::from_utf8_lossy(name).into_owned();
            }
            (false, true) => {
                self.add(&[MARK], pass_on);
                self.add(name, pass_on);
            }
            (false, false) => self.mark = Some(name.to_vec()),
        }
    }

    /// Adds text, and passes on the lines that it ends.
    fn add(&mut self, mut text: &[u8], pass_on: &mut impl FnMut(&str, &[u8])) {
        while !text.is_empty() {
            let room = STDERR_LINE_BYTES_MAX - self.unfinished.len();
            let window = &text[..text.len().min(room)];
            let end = window.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(window.len(), |end| end + 1);
            self.unfinished.extend_from_slice(&text[..taken]);
            text = &text[taken..];
            if end.is_some() {
                self.end_line(pass_on);
            } else if self.unfinished.len() >= STDERR_LINE_BYTES_MAX {
                self.cut(pass_on);
            }
        }
    }

    /// Passes a piece of a long line on, up to the last whole character.
    fn cut(&mut self, pass_on: &mut impl FnMut(&str, &[u8])) {
        let whole = match std::str::from_utf8(&self.unfinished) {
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
            Ok(_) | Err(_) => self.unfinished.len(),
        };
        let rest = self.unfinished.split_off(whole);
        self.end_line(pass_on);
        self.unfinished = rest;
    }

    fn end_line(&mut self, pass_on: &mut impl FnMut(&str, &[u8])) {
        if self.unfinished.is_empty() {
            return;
        }
        if self.unfinished.last() != Some(&b'\n') {
            self.unfinished.push(b'\n');
        }
        pass_on(&self.name, &self.unfinished);
        self.unfinished.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(chunks: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        let (mut passed, mut lines) = (Vec::new(), Lines::default());
        let mut pass_on = |name: &str, line: &[u8]| passed.push((name.to_owned(), line.to_vec()));
        for chunk in chunks {
            lines.push(chunk, &mut pass_on);
        }
        lines.finish(&mut pass_on);
        passed
    }

    fn named(expected: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        expected.iter().map(|(name, line)| ((*name).to_owned(), line.as_bytes().to_vec())).collect()
    }

    #[test]
    fn lines_are_passed_on_whole_however_they_arrive() {
        let expected = named(&[("", "one\n"), ("", "two\n"), ("", "\n"), ("", "three\n")]);
        assert_eq!(lines_of(&[b"on", b"e\ntw", b"o\n", b"\nthree"]), expected);
    }

    #[test]
    fn a_mark_names_what_follows_and_is_never_seen() {
        let stream = b"before\n\x1efirst\x1e\none\nunfinished\x1esecond\x1e\ntwo\n";
        let expected = named(&[("", "before\n"), ("first", "one\n"), ("first", "unfinished\n"), ("second", "two\n")]);
        assert_eq!(lines_of(&[stream]), expected);
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(lines_of(&bytes), expected);
    }

    #[test]
    fn a_record_separator_that_begins_no_mark_is_text() {
        let long = "n".repeat(OUTPUT_NAME_BYTES_MAX + 1);
        for text in ["\x1e{\"json\": 1}\n", "a\x1eb\x1ec\n", "\x1e\n", &format!("\x1e{long}\x1e\n"), "ends in \x1e\n"] {
            assert_eq!(lines_of(&[text.as_bytes()]), named(&[("", text)]), "{text:?}");
        }
        assert_eq!(lines_of(&[b"\x1ecut"]), named(&[("", "\x1ecut\n")]));
        let behind = format!("a\x1e{long}\x1ename\x1e\nb\n");
        assert_eq!(lines_of(&[behind.as_bytes()]), named(&[("", &format!("a\x1e{long}\n")), ("name", "b\n")]));
        assert_eq!(lines_of(&[b"a\x1eb\x1ename\x1e\nc\n"]), named(&[("", "a\x1eb\n"), ("name", "c\n")]));
    }

    #[test]
    fn a_long_line_comes_in_pieces_of_whole_characters() {
        let text = "ä".repeat(STDERR_LINE_BYTES_MAX);
        let shifted = format!("x{text}\n");
        let passed = lines_of(&[shifted.as_bytes()]);
        assert_eq!(passed.len(), 3);
        let joined: String =
            passed.iter().map(|(_, line)| std::str::from_utf8(line).expect("whole").trim_end()).collect();
        assert_eq!(joined, shifted.trim_end());
        assert_eq!(lines_of(&[&vec![0xff; 3 * STDERR_LINE_BYTES_MAX + 5]]).len(), 4);
    }
}
