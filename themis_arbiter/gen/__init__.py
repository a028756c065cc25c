"""Code generated from `proto/`, kept in the repository so that running needs no compiler.

Import it as `from themis_arbiter.gen.themis.v1 import cluster_pb2, cluster_pb2_grpc`. Never edit what is below
`themis/`: change the `.proto` file and run `make gen`; a test generates again and compares.
"""
