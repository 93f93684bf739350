//! Reduce and broadcast: arrays that many tasks make become one, as they arrive and where they are, and go to all nodes again.

use bireme::{Array, ReduceOp};

const WEIGHTS: usize = 200_000;

/// What one worker found.
#[bireme::remote]
fn gradient(weights: Array, shard: u32) -> bireme::Result<Array> {
    Ok(Array::from(&weights.view::<f32>()? * (shard + 1) as f32))
}

/// An operation of one's own: of each pair the number that is farther from zero.
#[bireme::op]
fn farthest(into: &mut [f32], from: &[f32]) {
    for (into, from) in into.iter_mut().zip(from) {
        if from.abs() > into.abs() {
            *into = *from;
        }
    }
}

fn main() -> bireme::Result<()> {
    let _context = bireme::init()?;
    let weights = bireme::put(Array::from(vec![1.0_f32; WEIGHTS]))?;
    let gradients: Vec<_> = (0..4).map(|shard| gradient::remote(&weights, shard)).collect();

    // A reference, at once: the gradients are combined as they come.
    let mean = bireme::reduce(&gradients, ReduceOp::Mean).start();
    assert_eq!(mean.get()?.view::<f32>()?[[0]], 2.5);

    // On to the nodes that will read it, before anybody there asks: reduce and broadcast are an all-reduce.
    bireme::broadcast(&mean, None)?;
    bireme::broadcast(&weights, Some(&[bireme::node_id()?]))?;
    assert_eq!(gradient::remote(&mean, 1_u32).get()?.view::<f32>()?[[0]], 5.0);

    // The first three that are ready, whichever they are.
    let fastest = bireme::reduce(&gradients, ReduceOp::Sum).count(3).start();
    let used = fastest.used_inputs()?;
    println!("the mean of four gradients is {}, and {used:?} were the fastest three", mean.get()?.view::<f32>()?[[0]]);
    assert_eq!(used.len(), 3);

    // Results feed other reduces, and a fixed order gives equal bits every time.
    let largest = bireme::reduce([&mean, &fastest], ReduceOp::Max).fixed_order().start();
    assert_eq!(largest.get()?.shape(), [WEIGHTS]);

    // Nodes do not have this program's code, so tasks run an operation of one's own.
    let far = bireme::reduce(&gradients, farthest::OP).start();
    assert_eq!(far.get()?.view::<f32>()?[[0]], 4.0);
    Ok(())
}
