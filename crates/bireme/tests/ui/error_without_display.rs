struct Leak;

#[bireme::remote]
fn sail() -> Result<u32, Leak> {
    Err(Leak)
}

fn main() {}
