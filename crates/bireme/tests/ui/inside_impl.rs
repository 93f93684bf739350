struct Boat(u32);

impl Boat {
    #[bireme::remote]
    fn build(oars: u32) -> Self {
        Boat(oars)
    }
}

impl Boat {
    #[bireme::remote]
    fn oars(boats: Vec<Self>) -> u32 {
        boats.iter().map(|boat| boat.0).sum()
    }
}

fn main() {}
