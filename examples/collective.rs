//! Collective groups: actors that train a model together, each on data of its own.

use bireme::Array;
use bireme::collective::{Group, Op};

/// Learns the slope of a line from points that only it has.
struct Trainer {
    points: Vec<(f64, f64)>,
    slope: f64,
}

#[bireme::actor]
impl Trainer {
    pub fn new(points: Vec<(f64, f64)>) -> Self {
        Trainer { points, slope: 0.0 }
    }

    /// Takes steps down the gradient of all points, though nobody has them all.
    pub fn train(&mut self, group: Group, steps: usize) -> bireme::Result<f64> {
        for _ in 0..steps {
            let slope = self.slope;
            let gradient: f64 = self.points.iter().map(|(x, y)| 2.0 * x * (slope * x - y)).sum();
            let gradients = Array::from(vec![gradient / self.points.len() as f64]);
            let mean = group.all_reduce(&gradients, Op::Mean)?;
            self.slope -= 0.05 * mean.as_slice::<f64>()?[0];
        }
        Ok(self.slope)
    }

    /// The points of all trainers, at the first of them.
    pub fn collect(&self, group: Group) -> bireme::Result<usize> {
        let xs = Array::from(self.points.iter().map(|(x, _)| *x).collect::<Vec<f64>>());
        let all = group.gather(&xs, 0)?;
        Ok(all.map_or(0, |arrays| arrays.iter().map(|array| array.shape()[0]).sum()))
    }
}

/// One of several tasks that take their ranks themselves.
#[bireme::remote]
fn neighbour(group: Group, rank: usize) -> bireme::Result<i64> {
    let member = group.join(rank)?;
    let (next, before) = ((rank + 1) % member.size(), (rank + member.size() - 1) % member.size());
    member.send(&Array::from(vec![rank as i64]), next, 0)?;
    Ok(member.recv(before, 0)?.as_slice::<i64>()?[0])
}

fn main() -> bireme::Result<()> {
    let _context = bireme::init_with(bireme::Config::default().cpus(4.0))?;
    let points = |rank: i32| -> Vec<(f64, f64)> {
        let xs = (1..=4).map(|n| f64::from(n) / 2.0 + f64::from(rank) / 10.0);
        xs.map(|x| (x, 3.0 * x)).collect()
    };
    let trainers: Vec<TrainerHandle> = (0..3).map(|rank| Trainer::remote(points(rank))).collect();
    let group = Group::of(trainers.iter().map(TrainerHandle::id))?;
    let slopes: Vec<_> = trainers.iter().map(|trainer| trainer.train(group.clone(), 60)).collect();
    for slope in bireme::get_all(&slopes)? {
        println!("slope: {slope:.4}");
        assert!((slope - 3.0).abs() < 1e-3);
    }
    let counts: Vec<_> = trainers.iter().map(|trainer| trainer.collect(group.clone())).collect();
    assert_eq!(bireme::get_all(&counts)?, [12, 0, 0]);

    let ring = Group::new(3)?;
    let tasks: Vec<_> = (0..3).map(|rank| neighbour::remote(ring.clone(), rank)).collect();
    assert_eq!(bireme::get_all(&tasks)?, [2, 0, 1]);
    Ok(())
}
