from barnabas.common.processes import linux

linux.require()
