trait Boat {
    fn oars(&self) -> u32;
}

#[bireme::remote]
fn row(boat: Box<dyn Boat>) -> u32 {
    boat.oars()
}

fn main() {}
