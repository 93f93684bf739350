struct Counter(i64);

#[bireme::actor]
impl Counter {
    pub fn get(&self) -> i64 {
        self.0
    }
}

fn main() {}
