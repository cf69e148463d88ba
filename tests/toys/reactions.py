"""Seven reactions in SMILES, 315 tokens to the chemical models."""

REACTIONS = (
    "CC(=O)O.OCC>>CC(=O)OCC",
    "CC(C)(C)OC(=O)NCC(=O)O.NCc1ccccc1>>CC(C)(C)OC(=O)NCC(=O)NCc1ccccc1",
    "Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1",
    "CN(C)C=O.O=C(Cl)c1ccccc1.NCCO>>O=C(NCCO)c1ccccc1",
    "O=[N+]([O-])c1ccc(Cl)nc1.NC1CCCCC1>>O=[N+]([O-])c1ccc(NC2CCCCC2)nc1",
    "COC(=O)c1ccc(Br)cc1.[Li+].[OH-]>>O=C(O)c1ccc(Br)cc1",
    "C#CC(C)(C)O.Ic1ccc(F)cc1>>CC(C)(O)C#Cc1ccc(F)cc1",
)
