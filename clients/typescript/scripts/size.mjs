// The size of the bundle that a page needs: minified, and compressed.

import { build } from "esbuild";
import { brotliCompressSync, gzipSync } from "node:zlib";

const { outputFiles } = await build({
  entryPoints: [new URL("../dist/browser.js", import.meta.url).pathname],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  write: false,
});
const [{ contents }] = outputFiles;
const sizes = {
  minified: contents.length,
  gzip: gzipSync(contents, { level: 9 }).length,
  brotli: brotliCompressSync(contents).length,
};
console.log(JSON.stringify(sizes));
