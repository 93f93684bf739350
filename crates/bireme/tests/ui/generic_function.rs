#[bireme::remote]
fn largest<T: Ord>(items: Vec<T>) -> Option<T> {
    items.into_iter().max()
}

fn main() {}
