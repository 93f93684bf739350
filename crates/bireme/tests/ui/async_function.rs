#[bireme::remote]
async fn later(x: i64) -> i64 {
    x
}

fn main() {}
