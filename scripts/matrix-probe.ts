/** Tells as JSON what this process's own device was found to work with. */
import { ourSettings } from '../conformance/siw/our-settings.ts';

process.stdout.write(`${JSON.stringify(await ourSettings())}\n`);
