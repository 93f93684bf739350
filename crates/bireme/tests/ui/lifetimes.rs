use std::borrow::Cow;

#[bireme::remote]
fn shout(text: Cow<'_, str>) -> String {
    text.to_uppercase()
}

#[bireme::remote]
fn longest<'a>(words: Vec<Cow<'a, str>>) -> usize {
    words.iter().map(|word| word.len()).max().unwrap_or(0)
}

// One that never ends is no matter.
#[bireme::remote]
fn whisper(text: Cow<'static, str>) -> String {
    text.to_lowercase()
}

fn main() {
    let _ = whisper::remote(Cow::Borrowed("AHOY"));
}
