//! Calls of two ranks: those of one host by its memory, others by messages.

use super::Hosts;
use crate::erased::{AnyInput, AnyOutput};
use crate::error::{Error, Result};
use ringwork_isa::{Dtype, Fingerprint, Operation};

/// What both ranks of a transfer must agree upon.
fn transferred(dtype: Dtype, count: usize) -> Fingerprint {
    Fingerprint::new(0, Operation::Send, dtype, count as u64)
}

impl Hosts {
    fn check_peer(&self, call: &'static str, peer: u32) -> Result<()> {
        self.check_rank(call, peer)?;
        if peer == self.spread.me {
            let problem = format!("rank {peer} is this rank itself; copy instead");
            return Err(Error::arguments(call, problem));
        }
        Ok(())
    }

    /// The tag of transfers, which collective calls do not have.
    fn transfer_tag(&self) -> u32 {
        self.spread.tag + 1
    }

    pub(crate) fn send(&self, data: AnyInput<'_>, to: u32) -> Result<()> {
        self.here.check_home("send", data.home())?;
        self.check_peer("send", to)?;
        if let Some(local) = self.spread.local_of(to) {
            return self.here.send(data, local);
        }
        let call = transferred(data.dtype(), data.len());
        self.with_messages(call, self.transfer_tag(), |messages| {
            messages.send(to, self.read(data)?.bytes())
        })
    }

    pub(crate) fn recv(&self, data: AnyOutput<'_>, from: u32) -> Result<()> {
        self.here.check_home("recv", data.home())?;
        self.check_peer("recv", from)?;
        if let Some(local) = self.spread.local_of(from) {
            return self.here.recv(data, local);
        }
        let call = transferred(data.dtype(), data.len());
        self.with_messages(call, self.transfer_tag(), |messages| {
            let arrived = messages.take(messages.expect(from, data.bytes())?)?;
            self.write(data, arrived.bytes())
        })
    }

    /// Both begin before either is waited for, so that ranks can exchange in a circle.
    pub(crate) fn exchange(
        &self,
        input: AnyInput<'_>,
        output: AnyOutput<'_>,
        to: u32,
        from: u32,
    ) -> Result<()> {
        self.check_buffers("exchange", &input, &output)?;
        self.check_peer("exchange", to)?;
        self.check_peer("exchange", from)?;
        let tag = self.transfer_tag();
        match (self.spread.local_of(to), self.spread.local_of(from)) {
            (Some(to), Some(from)) => self.here.exchange(input, output, to, from),
            (Some(local), None) => {
                let call = transferred(output.dtype(), output.len());
                self.with_messages(call, tag, |messages| {
                    let _moving = messages.keep_moving();
                    let incoming = messages.expect(from, output.bytes())?;
                    self.here.send(input, local)?;
                    self.write(output, messages.take(incoming)?.bytes())
                })
            }
            (None, Some(local)) => {
                let call = transferred(input.dtype(), input.len());
                self.with_messages(call, tag, |messages| {
                    let _moving = messages.keep_moving();
                    messages.send(to, self.read(input)?.bytes())?;
                    self.here.recv(output, local)
                })
            }
            (None, None) => {
                let (out, back) = (
                    transferred(input.dtype(), input.len()),
                    transferred(output.dtype(), output.len()),
                );
                self.with_messages(out, tag, |leaving| {
                    leaving.send(to, self.read(input)?.bytes())?;
                    self.with_messages(back, tag, |messages| {
                        let arrived = messages.take(messages.expect(from, output.bytes())?)?;
                        self.write(output, arrived.bytes())
                    })
                })
            }
        }
    }
}
