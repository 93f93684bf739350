use bireme::ObjectRef;

#[bireme::remote]
fn square(x: i64) -> i64 {
    x * x
}

fn main() {
    let word: ObjectRef<String> = bireme::put("four".to_owned()).unwrap();
    square::remote(&word);
    square::remote("four");
}
