//! Calls of one caller run in their order, and parents that share a process do not hold each other's calls up.
// expect: 1000 calls in order
// expect: 20 parents and 20 children

struct Board(Vec<u32>);

#[bireme::actor]
impl Board {
    pub fn new() -> Self {
        Board(Vec::new())
    }

    pub fn note(&mut self, number: u32) -> u32 {
        self.0.push(number);
        number
    }

    pub fn one(&self) -> u32 {
        1
    }

    pub fn all(&self) -> Vec<u32> {
        self.0.clone()
    }
}

#[bireme::remote]
fn child(board: BoardHandle) -> bireme::Result<u32> {
    board.one().get()
}

#[bireme::remote]
fn parent(board: BoardHandle) -> bireme::Result<u32> {
    board.note(child::remote(board.clone())).get()
}

fn main() -> bireme::Result<()> {
    let _context = bireme_programs::start()?;
    let board = Board::remote();
    let calls: Vec<_> = (0..1000_u32).map(|number| board.note(number)).collect();
    bireme::get_all(&calls)?;
    assert_eq!(board.all().get()?, (0..1000).collect::<Vec<u32>>());
    println!("{} calls in order", calls.len());
    let parents: Vec<_> = (0..20).map(|_| parent::remote(board.clone())).collect();
    println!("{} parents and 20 children", bireme::get_all(&parents)?.iter().sum::<u32>());
    Ok(())
}
