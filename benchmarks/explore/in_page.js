// What is measured inside the page; `app` is the explorer.

const pause = (milliseconds) => new Promise((ready) => setTimeout(ready, milliseconds));
const frame = () => new Promise(requestAnimationFrame);

const measures = {
  async first(app) {
    while (!(app.view.frames > 0 && app.data.has("tile-0-0.bin") && !app.asked)) await frame();
    return performance.now();
  },

  async look(app, events) {
    const { duration } = app.data.index;
    app.view.centre(duration / 2, -1, events ? app.view.spanOf(events) : 1.02 * duration);
    app.redraw();
    await pause(1500);
    return true;
  },

  async pan(app, count) {
    const frames = [];
    let before = performance.now();
    for (let number = 0; number < count; number++) {
      app.view.pan(2 * number < count ? 0.004 : -0.004);
      app.redraw();
      await frame();
      await pause(0);
      frames.push(performance.now() - before);
      before = performance.now();
    }
    const total = frames.reduce((sum, each) => sum + each, 0);
    frames.sort((one, other) => one - other);
    return { fps: (1000 * count) / total, slow: frames[Math.floor(0.95 * count)], ...app.view.shown };
  },

  async goto(app, turn) {
    let seed = 7 + 1000 * turn;
    const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
    random();
    app.view.centre((0.02 + 0.96 * random()) * app.data.index.duration, -1, app.view.spanOf(3000));
    app.redraw();
    await pause(400);
    return true;
  },

  async click(app, turn) {
    const { gutter, plotWidth, height } = app.view;
    const at = performance.now();
    await app.pick(gutter + (0.2 + 0.03 * turn) * plotWidth, 40 + ((37 * turn) % (height - 60)));
    await frame();
    return performance.now() - at;
  },
};
