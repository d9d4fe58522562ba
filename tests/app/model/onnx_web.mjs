// Runs an ONNX graph on images by ONNX Runtime Web: node onnx_web.mjs GRAPH IMAGES ANSWERS, in a folder with its package.
import fs from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [graph, images, answers] = process.argv.slice(2);
const found = createRequire(process.cwd() + "/").resolve("onnxruntime-web");
const ort = (await import(pathToFileURL(found))).default;
ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create(fs.readFileSync(graph), { executionProviders: ["wasm"] });
const scores = [];
for (const { shape, pixels } of JSON.parse(fs.readFileSync(images, "utf8"))) {
  const image = new ort.Tensor("uint8", Uint8Array.from(Buffer.from(pixels, "base64")), shape);
  scores.push(Array.from((await session.run({ image })).scores.data));
}
fs.writeFileSync(answers, JSON.stringify(scores));
