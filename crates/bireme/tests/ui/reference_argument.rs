#[bireme::remote]
fn length(text: &str) -> usize {
    text.len()
}

#[bireme::remote]
fn first(items: Vec<i64>, inside: Option<&'static str>) -> i64 {
    items[0] + inside.map_or(0, |_| 1)
}

fn main() {}
