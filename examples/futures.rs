//! Futures: references can be awaited under any executor; here a small one of our own.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

#[bireme::remote]
fn fetch(page: u32) -> String {
    format!("page {page}")
}

#[bireme::remote]
fn length(text: String) -> usize {
    text.len()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

async fn total() -> bireme::Result<usize> {
    let first = fetch::remote(1);
    let lengths = [length::remote(&first), length::remote(fetch::remote(22))];
    println!("the first page: {}", (&first).await?);
    let mut total = 0;
    for length in lengths {
        total += length.await?;
    }
    Ok(total)
}

fn main() -> bireme::Result<()> {
    let _context = bireme::init()?;
    let total = block_on(total())?;
    println!("two pages have {total} letters");
    assert_eq!(total, 13);
    Ok(())
}
