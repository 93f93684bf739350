#[bireme::remote]
unsafe fn risky(x: i64) -> i64 {
    x
}

fn main() {}
