//! Actors that call each other and wait, in the order that a test chooses.

pub struct Link;

#[bireme::actor]
impl Link {
    pub fn new() -> Self {
        Link
    }

    /// Has the first of these pass the rest on, and waits for it.
    pub fn pass_on(&mut self, mut links: Vec<LinkHandle>) -> u8 {
        if links.is_empty() {
            return 0;
        }
        let next = links.remove(0);
        next.pass_on(links).get().unwrap_or(u8::MAX)
    }
}
