#[bireme::remote]
fn greeting() -> &'static str {
    "ahoy"
}

fn main() {}
