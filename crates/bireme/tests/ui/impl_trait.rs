#[bireme::remote]
fn show(value: impl ToString) -> String {
    value.to_string()
}

fn main() {}
