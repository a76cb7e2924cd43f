//! A timeline: what ran where and when, as a page for a browser.
#![allow(clippy::print_stdout, reason = "a program for people prints")]

use ringwork::prelude::*;

/// y = x * x
#[kernel]
async fn square<C: Core>(core: &C, x: In<f32>, y: Out<f32>) -> Result<()> {
    let x = core.load(x).await?;
    core.store(y, &core.mul(&x, &x).await?).await
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let node = Node::builder().devices(0..2).launch()?;
    for chip in node.devices() {
        let (x, y) = (
            node.tensor(chip, &[3.0f32; 1000])?,
            node.zeros::<f32>(chip, 1000)?,
        );
        node.run(|orch| orch.submit(chip, square::task(&x, &y)))?;
        assert_eq!(y.read()?, [9.0; 1000]);
    }
    let timeline = node.clock().timeline().ok_or("this platform does not record")?;
    let page = std::env::temp_dir().join("ringwork-trace.html");
    std::fs::write(&page, timeline.html())?; // chrome_json() is for https://ui.perfetto.dev
    println!("open {} in a browser", page.display());
    std::fs::remove_file(page)?; // leave this out to keep the page
    Ok(())
}
