//! `.await` on references, under any executor.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use bireme_runtime::Runtime;

use crate::{ObjectRef, Result, Value, codec, names};

/// The value of an object as a future; made by `.await` on an [`ObjectRef`].
///
/// ```
/// use std::task::{Context, Poll, Waker};
/// let _context = bireme::init()?;
/// let mut future = std::pin::pin!(IntoFuture::into_future(bireme::put(5)?));
/// let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else { panic!("it is there") };
/// assert_eq!(value?, 5);
/// # Ok::<(), bireme::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct ObjectFuture<T>(ObjectRef<T>);

impl<T: Value> Future for ObjectFuture<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let fetched = match (Runtime::current(), self.0.reference()) {
            (_, Err(error)) | (Err(error), _) => return Poll::Ready(Err(error)),
            (Ok(runtime), Ok(reference)) => runtime.poll(reference, context),
        };
        fetched.map(|fetched| codec::unpack(&fetched.map_err(names::complete)?))
    }
}

impl<T: Value> IntoFuture for ObjectRef<T> {
    type Output = Result<T>;
    type IntoFuture = ObjectFuture<T>;

    fn into_future(self) -> ObjectFuture<T> {
        ObjectFuture(self)
    }
}

impl<T: Value> IntoFuture for &ObjectRef<T> {
    type Output = Result<T>;
    type IntoFuture = ObjectFuture<T>;

    fn into_future(self) -> ObjectFuture<T> {
        ObjectFuture(self.clone())
    }
}
