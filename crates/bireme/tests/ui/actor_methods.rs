struct Generic<T>(T);

#[bireme::actor]
impl<T> Generic<T> {
    pub fn new() -> Self {
        unimplemented!()
    }
}

struct Eaten;

#[bireme::actor]
impl Eaten {
    pub fn new() -> Self {
        Eaten
    }

    pub fn finish(self) {}
}

struct Taken;

#[bireme::actor]
impl Taken {
    pub fn new() -> Self {
        Taken
    }

    pub fn kill(&self) {}
}

struct Borrowing(String);

#[bireme::actor]
impl Borrowing {
    pub fn new(name: &str) -> Self {
        Borrowing(name.to_owned())
    }
}

fn main() {}
