//! Actors: state in a process of its own, a name to find it by, handles that tasks can use.

use std::collections::BTreeMap;

/// Scores of players.
struct Scores(BTreeMap<String, u32>);

#[bireme::actor]
impl Scores {
    pub fn new() -> Self {
        Scores(BTreeMap::new())
    }

    pub fn add(&mut self, player: String, points: u32) -> u32 {
        let score = self.0.entry(player).or_default();
        *score += points;
        *score
    }

    pub fn best(&self) -> Result<(String, u32), String> {
        let best = self.0.iter().max_by_key(|(_, score)| **score);
        best.map(|(player, score)| (player.clone(), *score)).ok_or_else(|| "nobody has played yet".to_owned())
    }
}

/// Plays in another process, and reports to the actor from there.
#[bireme::remote]
fn play(scores: ScoresHandle, player: String, rounds: u32) -> bireme::Result<u32> {
    let mut last = 0;
    for round in 1..=rounds {
        last = scores.add(player.clone(), round).get()?;
    }
    Ok(last)
}

fn main() -> bireme::Result<()> {
    let _context = bireme::init()?;
    let scores = Scores::options().name("scores").remote();
    println!("before the first game: {}", scores.best().get().expect_err("nobody has played"));
    let games = [play::remote(scores.clone(), "ada", 10), play::remote(scores.clone(), "grace", 7)];
    assert_eq!(bireme::get_all(&games)?, [55, 28]);
    let best = bireme::get_actor::<Scores>("scores")?.best().get()?;
    println!("the best player: {best:?}");
    assert_eq!(best, ("ada".to_owned(), 55));
    scores.kill()?;
    assert!(scores.best().get().is_err());
    Ok(())
}
