#[bireme::remote]
fn apply(function: impl Fn(i64) -> i64, x: i64) -> i64 {
    function(x)
}

#[bireme::remote]
fn apply_boxed(function: Box<dyn FnOnce(i64) -> i64>, x: i64) -> i64 {
    function(x)
}

#[bireme::remote]
fn apply_pointer(function: fn(i64) -> i64, x: i64) -> i64 {
    function(x)
}

fn main() {}
