import { existsSync } from 'node:fs';
import { builtPath, ensureTool, HELM, hasGo, RELEASES } from '../../../deploy/dev/go-tools.ts';
import { toolsOf } from './cluster.ts';

/** Builds all that the tests start, where that was not done before. */
export default function build(): void {
  const tools = [HELM, ...RELEASES.flatMap(toolsOf)];
  const missing = tools.filter((tool) => !existsSync(builtPath(tool)));
  if (missing.length > 0 && !hasGo())
    throw new Error('npm run test:kubernetes needs Go on PATH, to build Kubernetes');
  for (const tool of missing) {
    console.log(
      `building ${tool.name} ${tool.version}, once; all of Kubernetes takes half an hour on two cores`,
    );
    ensureTool(tool);
  }
}
